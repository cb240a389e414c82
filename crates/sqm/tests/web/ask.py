"""Sends a request to `sqm web` as its page does: ask.py METHOD PATH [JSON] prints the answer; an error ends with exit code 1."""

import json
import sys
import urllib.error
import urllib.request

BASE = "http://127.0.0.1:8080/api/v1"


def ask(method, path, body=None):
    headers = {"Content-Type": "application/json"}
    if method != "GET":
        headers["X-SQM-Token"] = ask("GET", "/session")["token"]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return json.loads(text) if answer.headers.get_content_type() == "application/json" and text else text


if __name__ == "__main__":
    method, path, *body = sys.argv[1:]
    try:
        answer = ask(method, path, *map(json.loads, body))
    except urllib.error.HTTPError as refused:
        sys.exit(f"{refused.code}: {refused.read().decode()}")
    print(answer if isinstance(answer, str) else json.dumps(answer))
