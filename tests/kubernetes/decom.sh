#!/bin/bash
# Stands in for the script of Spark's image that an executor's pod runs before it is stopped, if decommissioning is on.
exec pkill -PWR -f KubernetesExecutorBackend
