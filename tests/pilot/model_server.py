"""A scripted model: answers coding agents in their own APIs, one shell command of a script for each turn.

    model_server.py PORT SCRIPT.json

SCRIPT.json is {"commands": [...], "closing": "text"}. The turn is counted from the tool results in the request, so the
server keeps no state. Spoken: OpenAI chat completions and responses, and Anthropic messages, each streamed or whole.
Runs inside the session, on its own loopback: the sandbox needs no network for it.
"""

import http.server
import json
import pathlib
import sys
import time

SCRIPT = {"commands": [], "closing": "done"}


def shell_call(tools, command):
    """The name and the arguments of the tool with which this agent runs a shell command."""
    shapes = {
        "bash": {"command": command},
        "Bash": {"command": command, "description": "one step of the script"},
        "shell": {"command": ["/bin/sh", "-c", command]},
        "shell_command": {"command": command},
        "exec_command": {"cmd": command},
    }
    for name in tools:
        if name in shapes:
            return name, shapes[name]
    raise LookupError(f"no tool that runs commands among {tools}")


def step(results):
    """The command of this turn, or none when the script is over."""
    return SCRIPT["commands"][results] if results < len(SCRIPT["commands"]) else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "nobody"}], "models": []})

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        path = self.path.split("?")[0]
        for ending, answer in (("/chat/completions", self.answer_chat), ("/responses", self.answer_responses),
                               ("/messages/count_tokens", self.answer_count), ("/messages", self.answer_messages)):  # fmt: skip
            if path.endswith(ending):
                return answer(body)
        return self.answer({})

    def answer(self, document):
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events):
        """Server-sent events; each is (name or None, document or text)."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for name, document in events:
            text = document if isinstance(document, str) else json.dumps(document)
            self.wfile.write(((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode())
        self.close_connection = True

    def answer_count(self, _):
        self.answer({"input_tokens": 1})

    def answer_chat(self, body):
        command = step(sum(message.get("role") == "tool" for message in body["messages"]))
        tools = [tool["function"]["name"] for tool in body.get("tools", [])]
        message = {"role": "assistant", "content": SCRIPT["closing"] if command is None else "next step"}
        reason = "stop"
        if command is None and "bash" in tools and SCRIPT.get("closing_command"):
            command = SCRIPT["closing_command"]
        if command is not None:
            name, arguments = shell_call(tools, command)
            call = {"id": f"call_{len(body['messages'])}", "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)}}  # fmt: skip
            message["tool_calls"], reason = [call], "tool_calls"
        common = {"id": "chat-1", "created": int(time.time()), "model": body.get("model", "scripted")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            return self.answer({**common, "object": "chat.completion", "usage": usage,
                                "choices": [{"index": 0, "message": message, "finish_reason": reason}]})  # fmt: skip
        for index, call in enumerate(message.get("tool_calls", [])):
            call["index"] = index
        chunk = {**common, "object": "chat.completion.chunk"}
        return self.stream([
            (None, {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
            (None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}),
            (None, "[DONE]"),
        ])  # fmt: skip

    def answer_responses(self, body):
        items = body["input"] if isinstance(body.get("input"), list) else []
        done = sum(str(item.get("type", "")).endswith("call_output") for item in items)
        command = step(done)
        if command is None:
            item = {"type": "message", "role": "assistant", "id": f"msg_{done}", "status": "completed",
                    "content": [{"type": "output_text", "text": SCRIPT["closing"], "annotations": []}]}  # fmt: skip
        else:
            name, arguments = shell_call([tool.get("name") for tool in body.get("tools", [])], command)
            item = {"type": "function_call", "id": f"fc_{done}", "call_id": f"call_{done}", "name": name,
                    "arguments": json.dumps(arguments), "status": "completed"}  # fmt: skip
        response = {"id": f"resp_{done}", "object": "response", "created_at": int(time.time()), "status": "completed",
                    "model": body.get("model", "scripted"), "output": [item],
                    "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                              "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}}  # fmt: skip
        if not body.get("stream"):
            return self.answer(response)
        events = [
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        return self.stream([(event["type"], {**event, "sequence_number": i}) for i, event in enumerate(events)])

    def answer_messages(self, body):
        done = sum(
            part.get("type") == "tool_result"
            for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]
        )  # fmt: skip
        tools = [tool.get("name") for tool in body.get("tools", [])]
        command = step(done) if tools else None  # agents also ask for titles, without tools
        if command is None:
            block = {"type": "text", "text": SCRIPT["closing"]}
        else:
            name, arguments = shell_call(tools, command)
            block = {"type": "tool_use", "id": f"toolu_{done:020}", "name": name, "input": arguments}
        message = {"id": f"msg_{done}", "type": "message", "role": "assistant", "model": body.get("model", "scripted"),
                   "content": [block], "stop_reason": "end_turn" if command is None else "tool_use",
                   "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
        if not body.get("stream"):
            return self.answer(message)
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block.get("text", "")}
        if block["type"] == "tool_use":
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
             "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]  # fmt: skip
        return self.stream([(event["type"], event) for event in events])

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    SCRIPT.update(json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")))
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
