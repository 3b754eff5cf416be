"""Questions to an OpenAI-compatible endpoint: bounded in size, time, number and price."""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from flash_grpo.errors import InputError
from flash_grpo.rewards.judge.limits import Budget, Pace
from flash_grpo.rewards.judge.verdict import BadVerdict, question, read_verdict, schema

KEY = "FLASH_GRPO_JUDGE_KEY"
SERVER = "FLASH_GRPO_JUDGE_SERVER"
MAX_ANSWER = 1 << 20
MAX_TOKENS = 1024
PICTURE_TOKENS = 4096
"""More than the known models count for a picture of the sides sent here."""
LONGEST_WAIT = 60.0

_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}


class _Refused(Exception):
    """The endpoint did not answer with a verdict. `again`: it may on another try, after `wait` seconds at least."""

    def __init__(self, sentence: str, again: bool = True, wait: float = 0.0) -> None:
        super().__init__(sentence)
        self.again, self.wait = again, wait


@dataclass(frozen=True)
class Address:
    """Where the judge is: the URL that ends in /v1, the model's name, and the key, if one goes there."""

    url: str
    model: str
    key: str | None


def find_address(server: str, model: str) -> Address:
    """The address by the options and the environment.

    The key of the environment is only sent to the server that the environment names, so that a configuration cannot
    have it sent elsewhere. Raises InputError for a server or model that is missing or no plain http(s) URL.
    """
    named = os.environ.get(SERVER, "").rstrip("/")
    url = server.rstrip("/") or named
    if not url or not model:
        raise InputError(
            f"reward 'vlm_judge' needs a server and a model; set its options `server` (or {SERVER}) and `model`, "
            "for instance http://127.0.0.1:8000/v1 and the name the server lists"
        )
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(
            "reward 'vlm_judge' expects a server like http://host:8000/v1, without user, password or query; "
            f"a key goes into {KEY}"
        )
    key = os.environ.get(KEY, "") if url == named else ""
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"reward 'vlm_judge' cannot send the key in {KEY}; expected one line of ASCII characters")
    return Address(url, model, key or None)


class Judge:
    """Asks one endpoint about videos; safe for threads.

    `seconds` bounds one try, `retries` the further tries after failures that may pass and after answers that are no
    verdict. Raises InputError when httpx is missing.
    """

    def __init__(self, address: Address, rubric: str, seconds: float, retries: int, pace: Pace, budget: Budget) -> None:
        try:
            import httpx
        except ImportError as error:
            raise InputError(
                "reward 'vlm_judge' needs httpx, which is not installed; run pip install 'flash-grpo-studio[rewards]'"
            ) from error
        headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
        headers["Accept-Encoding"] = "identity"  # so that the limit on its length holds for what comes
        # No settings of the environment: .netrc would send other services' passwords along.
        self._client = httpx.Client(timeout=seconds, headers=headers, trust_env=False, follow_redirects=False)
        self._errors = (httpx.HTTPError, httpx.StreamError)
        self._unreached = (httpx.ConnectError, httpx.ConnectTimeout)
        self._address, self._rubric, self._seconds, self._retries = address, rubric, seconds, retries
        self._pace, self.budget = pace, budget
        self._structured = True

    def ask(self, prompt: str, pictures: Sequence[str], stop: threading.Event) -> float:
        """The score of one video in 0..1. Raises RuntimeError when the tries are used up or `stop` is set."""
        for attempt in range(self._retries + 1):
            self._pace.wait(stop)
            if stop.is_set():
                raise RuntimeError("reward 'vlm_judge' stopped because another video could not be judged")
            try:
                return self._once(prompt, pictures, self._structured)
            except _Refused as refused:
                failure = refused
            if not failure.again:
                break
            # Clients that failed together do not come back together.
            stop.wait(max(failure.wait, random.uniform(0, min(LONGEST_WAIT, 0.5 * 2**attempt))))
        raise RuntimeError(
            f"reward 'vlm_judge' got no verdict from {self._address.url} in {attempt + 1} tries: {failure}; "
            "check the server, its model and its key"
        )

    def _once(self, prompt: str, pictures: Sequence[str], structured: bool) -> float:
        nonce = secrets.token_hex(8)  # new for each try: an answer that carries it was made for this try
        body: dict[str, object] = {
            "model": self._address.model,
            "messages": question(prompt, pictures, self._rubric, nonce),
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
        }
        if structured:
            form = {"name": "verdict", "strict": True, "schema": schema(nonce)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        status, wait, answer = self._charged(body, 1000 + 4 * len(prompt + self._rubric), len(pictures))
        if status in (400, 422) and structured:
            # Older servers know no schema; the reading is as strict without it.
            score = self._once(prompt, pictures, False)
            self._structured = False
            return score
        if status != 200:
            raise _Refused(f"HTTP status {status}", again=status in _AGAIN, wait=wait)
        try:
            return read_verdict(answer, nonce)
        except BadVerdict as error:
            raise _Refused(f"the answer is no verdict: {error}") from error

    def _charged(self, body: dict[str, object], tokens: int, pictures: int) -> tuple[int, float, object]:
        """What `_send` gives, with its price in the budget."""
        price = self.budget.set_aside(tokens + PICTURE_TOKENS * pictures, MAX_TOKENS)
        answer: object = None
        charged = True  # also when the answer is lost on its way
        try:
            status, wait, answer = self._send(body)
            charged = status == 200
            return status, wait, answer
        except self._unreached as error:
            charged = False
            raise _Refused("the server cannot be reached") from error
        except self._errors as error:
            raise _Refused(f"the connection failed ({type(error).__name__})") from error
        finally:
            self.budget.settle(price, answer.get("usage") if isinstance(answer, dict) else None, charged)

    def _send(self, body: dict[str, object]) -> tuple[int, float, object]:
        """Status, seconds to wait and JSON of the answer, read no further than it may be long nor may take."""
        end = time.monotonic() + self._seconds
        read = bytearray()
        address, text = f"{self._address.url}/chat/completions", json.dumps(body)
        headers = {"Content-Type": "application/json"}
        with self._client.stream("POST", address, content=text, headers=headers) as response:
            if response.status_code != 200:
                return response.status_code, _seconds(response.headers.get("Retry-After")), None
            for piece in response.iter_raw():
                read += piece
                if len(read) > MAX_ANSWER:
                    raise _Refused(f"the answer is longer than {MAX_ANSWER} bytes")
                if time.monotonic() > end:
                    raise _Refused(f"the answer took longer than {self._seconds:g} seconds")
        try:
            return 200, 0.0, json.loads(read)
        except (ValueError, RecursionError) as error:
            raise _Refused("the answer is not JSON") from error


def _seconds(header: str | None) -> float:
    """Seconds of a Retry-After header, within reason; 0 for dates and nonsense."""
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else 0.0
