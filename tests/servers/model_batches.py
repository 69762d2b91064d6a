"""The Batch API of the scripted server, in memory: files, and jobs that are done after some looks or some time."""

import json
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import msgspec

RunItem = Callable[[Mapping[str, Any]], tuple[int, Any]]
"""Answers one prompt of a job: the status and the body."""


class BatchPlan(msgspec.Struct, frozen=True):
    """How jobs go: done at the so-manieth look and so many seconds after they were handed in, whichever is later.

    `ends` is how they end: completed, failed (the file was refused), expired or cancelled. `fates` says what becomes of
    single prompts, by custom_id: "expired" or "missing"; the others are answered by the script.
    """

    polls: int = 1
    seconds: float = 0.0
    ends: str = "completed"
    fates: Mapping[str, str] = {}


class Batches:
    """Files and jobs."""

    def __init__(self, plan: BatchPlan, run: RunItem) -> None:
        self.plan = plan
        self.files: dict[str, bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self._run = run
        self._looks: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._numbers = count(1)

    def add_file(self, content: bytes, purpose: str) -> dict[str, Any]:
        """Keep a file."""
        name = f"file-{next(self._numbers)}"
        self.files[name] = content
        return {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": int(time.time()),
            "filename": "prompts.jsonl",
            "purpose": purpose,
            "status": "processed",
        }

    def add(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Take a job in."""
        name = f"batch_{next(self._numbers)}"
        self._looks[name], self._since[name] = 0, time.monotonic()
        self.jobs[name] = {
            **{key: asked.get(key) for key in ("endpoint", "input_file_id", "completion_window", "metadata")},
            "id": name,
            "object": "batch",
            "created_at": int(time.time()),
            "status": "in_progress",
            "errors": None,
            "output_file_id": None,
            "error_file_id": None,
        }
        return self.jobs[name]

    def look(self, name: str) -> dict[str, Any] | None:
        """A job as it stands at this look; None where there is none."""
        job = self.jobs.get(name)
        if job is not None and job["status"] == "in_progress":
            self._looks[name] += 1
            late = time.monotonic() - self._since[name] >= self.plan.seconds
            if late and self._looks[name] >= self.plan.polls:
                self._end(job)
        return job

    def page(self, after: str | None, limit: int) -> dict[str, Any]:
        """Jobs, newest first."""
        names = list(reversed(self.jobs))
        start = names.index(after) + 1 if after in names else 0
        shown = names[start : start + limit]
        return {
            "object": "list",
            "data": [self.jobs[name] for name in shown],
            "first_id": shown[0] if shown else None,
            "last_id": shown[-1] if shown else None,
            "has_more": start + limit < len(names),
        }

    def _end(self, job: dict[str, Any]) -> None:
        job["status"] = self.plan.ends
        if self.plan.ends == "failed":
            wrong = {"code": "invalid_json_line", "message": "This line is not parseable as valid JSON.", "line": 1}
            job["errors"] = {"object": "list", "data": [wrong]}
            return
        lines = [json.loads(line) for line in self.files[job["input_file_id"]].splitlines()]
        results = [result for line in lines if (result := self._result(line)) is not None]
        for field, failed in (("output_file_id", False), ("error_file_id", True)):
            chosen = [line for line in results if _failed(line) is failed]
            if chosen:
                job[field] = self.add_file("\n".join(map(json.dumps, chosen)).encode(), "batch_output")["id"]

    def _result(self, line: Mapping[str, Any]) -> dict[str, Any] | None:
        unmade = "expired" if self.plan.ends in {"expired", "cancelled"} else "answered"
        fate = self.plan.fates.get(line["custom_id"], unmade)
        if fate == "missing":
            return None
        result = {"id": f"batch_req_{next(self._numbers)}", "custom_id": line["custom_id"]}
        if fate == "expired":
            said = "This request could not be executed before the completion window expired."
            return {**result, "response": None, "error": {"code": "batch_expired", "message": said}}
        code, body = self._run(line["body"])
        return {**result, "response": {"status_code": code, "request_id": "r", "body": body}, "error": None}


def _failed(line: Mapping[str, Any]) -> bool:
    return line["response"] is None or line["response"]["status_code"] != 200
