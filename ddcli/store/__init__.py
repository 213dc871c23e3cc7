"""Files: change logs in and out, the state and its commits. Knows neither YAML nor plans.

* extras: packages that only some pipelines need
* key_text: keys as people write them
* time_text: times as people write them
"""
