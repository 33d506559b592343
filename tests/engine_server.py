"""A small server that speaks the OpenAI protocol and counts like vLLM, for the edge cases of our client.

    python engine_server.py --port 8000 --drafts 7 [--fault NAME] [--at-drafts N] [--after N] [--idle-steps N]

It drafts `--drafts` tokens a step and accepts 0, 1, 3, 0, 2, 0, 1, 3, … of them, as far as there are so many; its text is the same at
every K. A fault happens with `--at-drafts` drafts only (every number without it), after that many answers. In the first
`--idle-steps` steps of an answer nothing is drafted, as n-grams do.
"""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACCEPTED = (0, 1, 3, 0, 2)


class Counters:
    """What the server counted since it started."""

    def __init__(self, drafts: int) -> None:
        self.num_drafts = drafts
        self.lock = threading.Lock()
        self.steps = self.accepted = self.tokens = self.answers = 0
        self.by_position = [0] * drafts

    def add(self, accepted: int) -> None:
        with self.lock:
            self.steps += 1
            self.accepted += accepted
            for position in range(accepted):
                self.by_position[position] += 1

    def text(self) -> str:
        label = 'engine="0",model_name="tiny"'
        lines = ["# TYPE vllm:generation_tokens counter", f"vllm:generation_tokens_total{{{label}}} {self.tokens}.0"]
        if self.num_drafts:
            counts = {"drafts": self.steps, "draft_tokens": self.steps * self.num_drafts, "accepted_tokens": self.accepted}
            lines += [f"vllm:spec_decode_num_{name}_total{{{label}}} {count}.0" for name, count in counts.items()]
            lines += [f"vllm:spec_decode_num_{name}_created{{{label}}} 1.8e+09" for name in counts]
            lines += [
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="{position}"}} {count}.0'
                for position, count in enumerate(self.by_position)
            ]
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    arguments: argparse.Namespace
    counters: Counters

    def log_message(self, format: str, *args: object) -> None:
        pass

    def fault(self) -> str:
        chosen = self.arguments
        is_due = chosen.at_drafts in (None, chosen.drafts) and self.counters.answers >= chosen.after
        return chosen.fault if is_due else ""

    def reply(self, status: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(503 if self.fault() == "unhealthy" else 200, "")
        elif self.path == "/v1/models":
            self.reply(200, json.dumps({"data": [{"id": "tiny"}]}))
        elif self.path == "/version":
            self.reply(200, json.dumps({"version": "0.0.1"}))
        elif self.path == "/metrics" and self.fault() != "uncounted":
            self.reply(200, self.counters.text(), "text/plain")
        else:
            self.reply(404, "not here")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.fault()
        if fault == "strict" and ("return_token_ids" in body or "chat_template_kwargs" in body):
            self.reply(400, json.dumps({"error": {"message": "extra fields not permitted"}}))
        elif fault == "untemplated" and "chat" in self.path:
            self.reply(400, json.dumps({"object": "error", "message": "no chat template"}))
        elif fault == "refusing":
            self.reply(500, json.dumps({"error": {"message": "EngineCore encountered an issue", "code": 500}}))
            threading.Timer(0.05, os._exit, [0]).start()
        elif fault == "dying":
            sys.stderr.write("RuntimeError: the engine is gone\n")
            os._exit(1)
        else:
            self.stream(body, fault)

    def stream(self, body: dict, fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        is_chat, wants_ids = "chat" in self.path, body.get("return_token_ids", False)
        total = body["max_tokens"]
        if is_chat:
            self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        sent = step = 0
        while sent < total:
            drafts = self.counters.num_drafts if step >= self.arguments.idle_steps else 0
            accepted = min(ACCEPTED[step % 5], drafts) if sent else 0
            num = min(1 + accepted, total - sent)
            text = "".join(f"t{index} " for index in range(sent, sent + num))
            choice: dict = {"delta": {"content": text}} if is_chat else {"text": text}
            if wants_ids:
                choice["token_ids"] = list(range(sent, sent + num))
            if sent:
                time.sleep(self.arguments.step_ms / 1e3)
                step += 1
                if drafts:
                    self.counters.add(accepted)
            sent += num
            if fault == "cutting" and step == 3:
                self.close_connection = True
                return
            if fault == "breaking" and step == 3:
                self.event({"error": {"message": "out of memory"}})
                return
            if fault == "hanging" and step == 3:
                time.sleep(60)
            if sent == total:
                choice["finish_reason"] = "length"
            self.event({"choices": [choice]})
        self.event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": total}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")
        with self.counters.lock:
            self.counters.tokens += total
            self.counters.answers += 1

    def event(self, document: dict) -> None:
        self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def serve() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--drafts", type=int, default=0)
    parser.add_argument("--fault", default="")
    parser.add_argument("--at-drafts", type=int)
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=1.0)
    parser.add_argument("--idle-steps", type=int, default=0)
    Handler.arguments = parser.parse_args()
    Handler.counters = Counters(Handler.arguments.drafts)
    if Handler.arguments.fault == "stillborn":
        raise ValueError("no such model")
    ThreadingHTTPServer(("127.0.0.1", Handler.arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    serve()
