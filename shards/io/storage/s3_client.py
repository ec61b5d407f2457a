"""boto3's client of S3, with the settings that obstore's have, for what obstore cannot ask for.

Left to itself, boto3 overlooks some of them (the region in ``AWS_REGION``, encryption), and would write elsewhere, or
otherwise, than obstore reads.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from shards.errors import Misuse
from shards.io.storage.clients import CONNECT_S, REQUEST_S, RETRIES, options_for

#: Requests of one client that are under way at a time, at most.
CONNECTIONS = 8
#: Of a setting, what boto3's client calls it, and what obstore does, in the order in which it looks.
_OF_CLIENT = {
    "aws_access_key_id": ("access_key_id",),
    "aws_secret_access_key": ("secret_access_key",),
    "aws_session_token": ("session_token", "token"),
    "region_name": ("region", "default_region"),
    "endpoint_url": ("endpoint_url_s3", "endpoint", "endpoint_url"),
}
#: The same of what a new object is.
_OF_OBJECT = {"ServerSideEncryption": "server_side_encryption", "SSEKMSKeyId": "sse_kms_key_id"}
_TRUE = ("1", "true", "on", "yes", "y")


def s3() -> Any:
    """The client, with the settings of this process."""
    given = {name: _setting(*names) for name, names in _OF_CLIENT.items()}
    known = tuple((name, value) for name, value in given.items() if value)
    return _client(known, _is_set("skip_signature"), _is_set("virtual_hosted_style_request"))


def of_request() -> dict[str, str]:
    """What every request says."""
    return {"RequestPayer": "requester"} if _setting("request_payer").lower() in (*_TRUE, "requester") else {}


def of_new_object() -> dict[str, Any]:
    """What a request that begins an object says of it.

    Raises:
        Misuse: it is to be encrypted by a key that goes along with every request.
    """
    if _setting("sse_customer_key_base64"):
        raise Misuse("a key of one's own (sse-c) for objects in parts", todo="encrypt by aws:kms or AES256")
    told: dict[str, Any] = {name: value for name, key in _OF_OBJECT.items() if (value := _setting(key))}
    return told | ({"BucketKeyEnabled": True} if _is_set("sse_bucket_key_enabled") else {})


def _setting(*names: str) -> str:
    """The value of the first of some settings that is given as an option, else in the environment; else nothing."""
    options = {key.removeprefix("aws_"): value for key, value in options_for("s3").items()}
    around = {name: os.environ.get(f"AWS_{name.upper()}", "") for name in names}
    return next((source[name] for source in (options, around) for name in names if source.get(name)), "")


def _is_set(name: str) -> bool:
    return _setting(name).lower() in _TRUE


@lru_cache(maxsize=1)
def _client(settings: tuple[tuple[str, str], ...], is_unsigned: bool, is_hosted: bool) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        signature_version=UNSIGNED if is_unsigned else None,
        retries={"mode": "standard", "max_attempts": RETRIES},
        connect_timeout=CONNECT_S,
        read_timeout=REQUEST_S,
        request_checksum_calculation="when_required",  # stores that only speak S3 know no other
        response_checksum_validation="when_required",
        max_pool_connections=CONNECTIONS,
        s3={"addressing_style": "virtual" if is_hosted else "auto"},
    )
    return boto3.session.Session().client("s3", config=config, **dict(settings))
