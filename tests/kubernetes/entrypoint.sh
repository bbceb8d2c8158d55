#!/bin/bash
# Stands in for the entrypoint of Spark's image, which is in no registry of packages: it starts the same programs with the
# arguments that Spark's client puts into the variables of the pod.
set -e
case "$1" in
driver)
    shift
    exec /usr/bin/tini -s -- "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    options=()
    for ((number = 0; ; number++)); do
        name="SPARK_JAVA_OPT_$number"
        [ -n "${!name+set}" ] || break
        options+=("${!name}")
    done
    exec /usr/bin/tini -s -- "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "$SPARK_HOME/conf:$SPARK_HOME/jars/*:$PWD" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
