"""The standing adversary: whoever writes to a state, an output or an input tries to have `dd` touch what isn't the pipeline's.

A generator yields cases (`case.Case`): something hostile that is done to a shop (`shop.Shop`), and the commands that somebody then
calls there. The runner (`runner.Runner`) calls each in a process with limits, and `judge` looks at how it ended: with a documented
exit code, in time, within memory, no process left, nothing sent, nothing raw on a screen, and the canary tree around the shop (`canary.Canary`) untouched to the byte.

A new subject is a file with generators beside `states.py`, and a word in `attack.py`. The tests draw the same cases each time:
`DD_ADVERSARY=1000` has so many drawn of each generator, `DD_ADVERSARY=all` all there are, `DD_SEED=5` others. `make soak` draws fresh
ones for ten minutes; `make soak CASE=names:123` is one case again.
"""
