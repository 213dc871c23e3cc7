"""What a run is asked for, how it is sized, and what it did.

* functions: the Python functions of a pipeline: forbidden, or loaded
* options: where a run is computed
* request: what a run is asked for, and whether there is anything to do
* sizes: how a run is cut into shards and passes; pure
* summary: what a run did
"""
