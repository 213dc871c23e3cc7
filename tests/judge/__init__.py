"""The judge: pipelines run by the driver, cut into runs in any way, against their plain meaning."""
