"""The declarative base and the column kinds that several tables share."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import DateTime, MetaData, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Parent of every table: text is `text`, times carry a zone, constraints have names."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {str: Text, datetime: DateTime(timezone=True), dict[str, Any]: JSONB, list[Any]: JSONB}  # noqa: RUF012


Created = Annotated[datetime, mapped_column(server_default=func.now())]
PrimaryUuid = Annotated[uuid.UUID, mapped_column(primary_key=True)]
