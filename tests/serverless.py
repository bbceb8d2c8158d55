"""Databricks' serverless compute as far as its documentation tells: a gRPC proxy before a Spark Connect server.

Clients, and the server's foreachBatch processes, reach the server through it only. It refuses what serverless compute
refuses (its limitations at docs.databricks.com, read in November 2026): every trigger but `availableNow`; setting a
property of Spark, except those that its pages name as an example of the few that can be set; `persist` and `cache`;
global temporary views. What PySpark itself lacks without a JVM, such as `sparkContext`, need not be refused. No
function of a query reaches the network (tests/no_network_in_functions). Not known, and so not here: which addresses
data sources and foreachBatch reach, and which files they may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from pyspark.sql.connect.proto import base_pb2

from spark_kafka_eos.testing.ports import free_ports

PROPERTIES = frozenset(
    {
        "spark.databricks.execution.timeout",
        "spark.sql.ansi.enabled",
        "spark.sql.session.timeZone",
    }
)
_LIMITS = Path(__file__).with_name("no_network_in_functions")
_STREAMED_ANSWERS = ("ExecutePlan", "ReattachExecute")
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def refusal(method: str, request: bytes) -> str | None:
    """Why serverless compute would refuse this request, None if it would not."""
    match method:
        case "Config":
            operation = base_pb2.ConfigRequest.FromString(request).operation
            names = [pair.key for pair in operation.set.pairs]
            if unknown := sorted({*names} - PROPERTIES):
                return f"[CONFIG_NOT_AVAILABLE] Configuration {unknown[0]} is not available."
        case "AnalyzePlan":
            if base_pb2.AnalyzePlanRequest.FromString(request).WhichOneof("analyze") == "persist":
                return "[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute."
        case "ExecutePlan":
            command = base_pb2.ExecutePlanRequest.FromString(request).plan.command
            if command.HasField("write_stream_operation_start"):
                trigger = command.write_stream_operation_start.WhichOneof("trigger")
                if trigger != "available_now":
                    return f"[INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED] Trigger type {trigger} is not supported."
            if command.create_dataframe_view.is_global:
                return "[NOT_SUPPORTED_WITH_SERVERLESS] GLOBAL TEMPORARY VIEW is not supported on serverless compute."
    return None


class Serverless:
    """The proxy before the Spark Connect server at `port`, which may start later."""

    def __init__(self, port: int) -> None:
        self.port = free_ports(1)[0]
        self._to = grpc.insecure_channel(f"127.0.0.1:{port}", options=_NO_LIMIT)
        # By default two servers could share a port, if both found it free.
        self._server = grpc.server(ThreadPoolExecutor(32), options=[*_NO_LIMIT, ("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def python(self, folder: Path, python: str) -> Path:
        """For PYSPARK_PYTHON: `python`, which asks the server through the proxy, with the limits of functions."""
        program = folder / "python"
        other = f"{self.url}/${{SPARK_CONNECT_LOCAL_URL#sc://*/}}"  # the same user and token
        redirect = f'[ -z "$SPARK_CONNECT_LOCAL_URL" ] || export SPARK_CONNECT_LOCAL_URL="{other}"'
        limits = f'export PYTHONPATH="{_LIMITS}:$PYTHONPATH"'
        program.write_text(f'#!/bin/sh\n{redirect}\n{limits}\nexec {python} "$@"\n')
        program.chmod(0o755)
        return program

    def unary(self, method: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        call = self._to.unary_unary(method)

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            _refuse(method, request, context)
            try:
                return bytes(call(request, metadata=context.invocation_metadata()))
            except grpc.RpcError as error:
                _pass_on(error, context)
                raise

        return answer

    def streamed(self, method: str) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        call = self._to.unary_stream(method)

        def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            _refuse(method, request, context)
            answers = call(request, metadata=context.invocation_metadata())
            context.add_callback(answers.cancel)
            try:
                yield from answers
            except grpc.RpcError as error:
                _pass_on(error, context)

        return answer

    def artifacts(self, method: str) -> Callable[[Iterator[bytes], grpc.ServicerContext], bytes]:
        call = self._to.stream_unary(method)

        def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            return bytes(call(requests, metadata=context.invocation_metadata()))

        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait()
        self._to.close()


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, proxy: Serverless) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        method = handler_call_details.method
        name = method.rpartition("/")[2]
        if name == "AddArtifacts":
            return grpc.stream_unary_rpc_method_handler(self._proxy.artifacts(method))
        if name in _STREAMED_ANSWERS:
            return grpc.unary_stream_rpc_method_handler(self._proxy.streamed(method))
        return grpc.unary_unary_rpc_method_handler(self._proxy.unary(method))


def _pass_on(error: grpc.RpcError, context: grpc.ServicerContext) -> None:
    """The server's error, with the details from which PySpark makes its exception."""
    context.set_trailing_metadata(error.trailing_metadata() or ())
    context.abort(error.code(), error.details() or "")


def _refuse(method: str, request: bytes, context: grpc.ServicerContext) -> None:
    why = refusal(method.rpartition("/")[2], request)
    if why is not None:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
