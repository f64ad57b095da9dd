"""Protocol buffers that belong to TensorFlow, read without TensorFlow.

Only the messages and fields that are needed are declared, with the numbers they have in
TensorFlow's .proto files; protobuf skips the rest. Maps are read as the repeated key-value
entries that they are on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    # Message to field to (number, type); "*" marks a repeated field.
    Messages = Mapping[str, Mapping[str, tuple[int, str]]]

_PACKAGE = "edgeconv"


def message_class(messages: Messages, name: str) -> Any:
    """The class of the message `name` among `messages`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}/{name}.proto", package=_PACKAGE, syntax="proto3"
    )
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            message.field.append(_field(messages, field_name, number, kind))
    # A pool of its own: nothing here can clash with TensorFlow's real messages.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def _field(messages: Messages, name: str, number: int, kind: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    bare = kind.removesuffix("*")
    field = Field(name=name, number=number)
    field.label = Field.LABEL_REPEATED if kind.endswith("*") else Field.LABEL_OPTIONAL
    if bare in messages:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{_PACKAGE}.{bare}"
    else:
        field.type = Field.Type.Value(f"TYPE_{bare.upper()}")
    return field
