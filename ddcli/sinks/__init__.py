"""The files that a run writes beside its state.

* followers: tables of other programs that follow outputs' logs; the table of a database that follows an output
* log_compaction: old updates in a log, summed up
* outputs: one file of updates for each output and commit
* pieces: the updates of outputs that tasks make, in files of their own or in results
* replacement: files of logs and archives with other rows than before
* side_logs: late and refused rows, in logs of their own
"""
