"""The files that a run writes beside its state.

* archives: archived files of inputs without rows that are forgotten
* databases: which table of a database follows an output
* followers: tables of other programs that follow outputs' logs
* inspect: the lines that an `inspect` shows
* log_compaction: what is old in a log, summed up
* outputs: one file of updates for each output and commit
* replacement: which files of a log have other rows now
* side_logs: late and refused rows, in logs of their own
"""
