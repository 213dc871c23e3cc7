"""Files: change logs in and out, the state and its commits. Knows neither YAML nor plans.

* texts: keys and times as people write them
"""
