"""The clients of object stores: one a bucket, made of the environment's settings and what `configure` adds.

obstore (extra `cloud`) speaks to all of them and tries again by itself, with back-off and jitter. Settings are never
part of a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

from shards.errors import Misuse, NoSuchObject, ShardError, ShardsChanged, StoreFailed, without_secrets

#: Schemes of object stores, and the prefix that options for one service alone have.
SCHEMES = {"s3": "aws_", "s3a": "aws_", "gs": "google_", "gcs": "google_", "az": "azure_", "abfs": "azure_"}
#: A request that the server is too busy for, or that breaks, is made again this often, in so many seconds at most.
RETRIES, RETRY_S = 6, 90
#: Seconds in which a connection must stand, and a request be answered to its end.
CONNECT_S, REQUEST_S = 10, 120
_OF_SERVICE = "AWS_ENDPOINT_URL_S3"
_ENDPOINT_OPTIONS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
_ENDPOINTS = (_OF_SERVICE, "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT")
_URL = re.compile(r"([a-z0-9]+)://([^/]+)/?(.*)", re.S)

_options: dict[str, str] = {}
#: The process in which a client was made first: none of them outlives a fork.
_pids: set[int] = set()


def is_object(url: str) -> bool:
    """Whether a URL is that of an object store, or of an object in one."""
    return url.partition("://")[0] in SCHEMES and "://" in url


def configure(options: Mapping[str, str]) -> None:
    """Settings for this process and the workers that it starts, beside those of the environment, which they replace.

    Args:
        options: as obstore names them (``region``, ``endpoint``, ``skip_signature``); of one service alone with its
            prefix (``aws_region``, ``google_service_account``, ``azure_storage_account_name``).
    """
    _options.clear()
    _options.update({key.lower(): value for key, value in options.items()})
    store_of.cache_clear()


def configured() -> dict[str, str]:
    """What `configure` was called with, for a process that is started."""
    return dict(_options)


def options_for(scheme: str) -> dict[str, str]:
    """The options that the clients of a scheme take."""
    others = set(SCHEMES.values()) - {SCHEMES[scheme]}
    return {key: value for key, value in _options.items() if not key.startswith(tuple(others))}


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, bucket and key of an object.

    >>> split_url("s3://bucket/a/b.tar")
    ('s3', 'bucket', 'a/b.tar')

    Raises:
        Misuse: no bucket, or a key that no object has.
    """
    match = _URL.fullmatch(url)
    if match is None or match[1] not in SCHEMES:
        raise Misuse("not a URL of an object", shard=url, expected="such as s3://bucket/folder/name")
    if "//" in match[3] or match[3].startswith("/") or {".", ".."} & set(match[3].split("/")):
        raise Misuse("a URL with an empty part or dots", shard=url, todo="write it without them")
    return match[1], match[2], match[3]


def open_store(url: str) -> tuple[Any, str]:
    """The client of a URL's bucket, and the key in it.

    Raises:
        ShardError: obstore is not installed, an option is unknown, or this process was forked from one with clients.
    """
    scheme, bucket, key = split_url(url)
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        todo = "pip install 'curate-bdw[cloud]'"
        raise ShardError("object stores need obstore", shard=url, todo=todo) from error
    with as_shard_error("cannot be opened", url):
        return store_of(scheme, bucket), key


@lru_cache(maxsize=32)
def store_of(scheme: str, bucket: str) -> Any:
    """The client of a bucket."""
    from obstore import store

    from_url: Any = store.from_url  # whose types are those of one service each
    _pids.add(os.getpid())
    options = options_for(scheme)
    with _given_endpoint_first(options):
        return from_url(
            f"{'gs' if scheme == 'gcs' else scheme}://{bucket}",
            config=options,
            client_options={
                "allow_http": any(value.startswith("http://") for value in [*options.values(), *_endpoints()]),
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "timeout": timedelta(seconds=REQUEST_S),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
        )


def _endpoints() -> list[str]:
    return [os.environ.get(name, "") for name in _ENDPOINTS]


@contextmanager
def _given_endpoint_first(options: Mapping[str, str]) -> Iterator[None]:
    """Hide the one setting of the environment that obstore would prefer to an option."""
    of_service = os.environ.get(_OF_SERVICE)
    if of_service is None or not any(name in options for name in _ENDPOINT_OPTIONS):
        yield
        return
    del os.environ[_OF_SERVICE]
    try:
        yield
    finally:
        os.environ[_OF_SERVICE] = of_service


def _refuse_fork(url: str) -> None:
    if _pids and os.getpid() not in _pids:
        todo = "give torch's loader multiprocessing_context='spawn'"
        raise ShardError("a forked process cannot read an object store", shard=url, todo=todo)


@contextmanager
def as_shard_error(problem: str, url: str, offset: int | None = None) -> Iterator[None]:
    """Turn whatever a client raises into one line that names the object.

    Raises:
        NoSuchObject: nothing is there.
        ShardsChanged: it is not the object that was asked for by its ETag.
        StoreFailed: anything else.
    """
    from obstore.exceptions import PreconditionError

    _refuse_fork(url)
    try:
        yield
    except (ShardError, Misuse, MemoryError):
        raise
    except FileNotFoundError as error:
        raise NoSuchObject("no such object", shard=url, offset=offset) from error
    except PreconditionError as error:
        raise changed(url, offset) from error
    except Exception as error:
        code = str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))  # boto3's
        if code in ("NoSuchKey", "NoSuchBucket", "404"):
            raise NoSuchObject("no such object", shard=url, offset=offset) from error
        if code in ("PreconditionFailed", "412"):
            raise changed(url, offset) from error
        raise StoreFailed(f"{problem} ({reason(error)})", shard=url, offset=offset, todo=_todo(error)) from error


def changed(url: str, offset: int | None = None) -> ShardsChanged:
    """The error for an object that is not the one that was indexed."""
    todo = "index the shards again, or restore the object"
    return ShardsChanged("changed since it was indexed", shard=url, offset=offset, todo=todo)


def reason(error: Exception) -> str:
    """What went wrong, in a few words: the status and code that a server gave, else the beginning of the text."""
    text = without_secrets(" ".join(str(error).partition("Debug source")[0].split()))
    status = re.search(r"status code: (\d{3}(?: [A-Z][A-Za-z ]+)?)", text)
    code = re.search(r"<Code>(\w+)</Code>|An error occurred \((\w+)\)", text)
    told = [(found[1] or found[found.lastindex or 1]).strip() for found in (status, code) if found]
    return ", ".join(told) or re.sub(r"^.*?(?=[Ee]rror )", "", text)[:200] or type(error).__name__


def _todo(error: Exception) -> str:
    if "NoSuchBucket" in str(error):
        return "look at its name"
    if type(error).__name__ == "UnknownConfigurationKeyError":
        return "look at --storage-option, or at what configure_storage was given"
    denied = re.search(r"PermissionDenied|Unauthenticated|ExpiredToken|\b40[13]\b|credential", str(error))
    return "check the credentials in the environment" if denied else "run the same command again"
