"""A descriptor set as protoc would write it, and messages of it, without protoc."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

from flintmq.plugins.spark.pipeline.protobuf import message_descriptor

MESSAGE = "shop.Order"
_TYPE = descriptor_pb2.FieldDescriptorProto


def descriptor_set(*, imports: bool = True) -> bytes:
    """``shop.Order`` with a field of every kind, and ``shop.Tree``, which contains itself."""
    files = descriptor_pb2.FileDescriptorSet()
    if imports:
        timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    shop = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    shop.dependency.append("google/protobuf/timestamp.proto")
    kind = shop.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    _field(shop.message_type.add(name="Item"), "sku", 1, _TYPE.TYPE_STRING)
    tree = shop.message_type.add(name="Tree")
    _field(tree, "left", 1, _TYPE.TYPE_MESSAGE, type_name=".shop.Tree")
    order = shop.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    _field(entry, "key", 1, _TYPE.TYPE_STRING)
    _field(entry, "value", 2, _TYPE.TYPE_INT32)
    _field(order, "id", 1, _TYPE.TYPE_INT64)
    _field(order, "name", 2, _TYPE.TYPE_STRING)
    _field(order, "big", 3, _TYPE.TYPE_UINT64)
    _field(order, "small", 4, _TYPE.TYPE_UINT32)
    _field(order, "price", 5, _TYPE.TYPE_DOUBLE)
    _field(order, "kind", 6, _TYPE.TYPE_ENUM, type_name=".shop.Kind")
    _field(order, "items", 7, _TYPE.TYPE_MESSAGE, type_name=".shop.Item", label=_TYPE.LABEL_REPEATED)
    _field(order, "counts", 8, _TYPE.TYPE_MESSAGE, type_name=".shop.Order.CountsEntry", label=_TYPE.LABEL_REPEATED)
    _field(order, "at", 9, _TYPE.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    _field(order, "data", 10, _TYPE.TYPE_BYTES)
    order.oneof_decl.add(name="_maybe")
    _field(order, "maybe", 11, _TYPE.TYPE_INT32, proto3_optional=True, oneof_index=0)
    return files.SerializeToString()


def _field(message: Any, name: str, number: int, kind: int, **more: Any) -> None:
    message.field.add(name=name, number=number, type=kind, **{"label": _TYPE.LABEL_OPTIONAL, **more})


def new_order() -> Any:
    """An empty ``shop.Order``."""
    return GetMessageClass(message_descriptor(descriptor_set(), MESSAGE))()
