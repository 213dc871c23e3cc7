"""The files that a run writes beside its state.

* archives: archived files of inputs without rows that are forgotten
* followers: tables of other programs that follow outputs' logs; the table of a database that follows an output
* inspect: the lines that an `inspect` shows
* log_compaction: old updates in a log, summed up
* outputs: one file of updates for each output and commit
* pieces: the updates of outputs that tasks make, in files of their own or in results
* replacement: the files of a log whose history has changed
* side_logs: late and refused rows, in logs of their own
* violations: the updates of checks, noted while they are written
"""
