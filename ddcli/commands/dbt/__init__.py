"""A compiled dbt project as a pipeline file.

* manifest: the compiled project, read from `target/manifest.json`
* project: the imported parts of a project, and the reasons why others are left out
"""
