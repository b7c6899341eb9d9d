"""One page for a WSGI server (wsgi) and an ASGI server (asgi): the file that $PAGE names."""
import os

with open(os.environ["PAGE"], "rb") as file:
    PAGE = file.read()
HEADERS = [("content-type", "application/octet-stream"), ("content-length", str(len(PAGE)))]


def wsgi(environ, start_response):
    start_response("200 OK", HEADERS)
    return [PAGE]


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    headers = [(name.encode(), value.encode()) for name, value in HEADERS]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": PAGE})
