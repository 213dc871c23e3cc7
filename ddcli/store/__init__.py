"""Files: change logs in and out, the state and its commits. Knows neither YAML nor plans.

* key_text: keys as people write them
* time_text: times as people write them
"""
