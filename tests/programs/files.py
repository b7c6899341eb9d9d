"""The same as files.js on uvloop.

    files.py PORT DIRECTORY
"""
import asyncio, os, sys

import uvloop

port, directory = int(sys.argv[1]), sys.argv[2]


def content(name):
    with open(os.path.join(directory, "written"), "w") as other:
        other.write("of no concern to peers\n" * 1000)
    with open(os.path.join(directory, os.path.basename(name)), "rb") as file:
        return file.read()


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            keeps = True
            while (header := await reader.readline()) not in (b"\r\n", b""):
                keeps = keeps and header.lower() != b"connection: close\r\n"
            name = line.split()[1].decode()
            body = await asyncio.get_running_loop().run_in_executor(None, content, name)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()
            if not keeps:
                break
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", port)
    await server.serve_forever()


uvloop.run(main())
