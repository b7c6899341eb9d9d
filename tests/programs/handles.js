// Passes each connection to one of two children (child_process, subprocess.send), which echoes it; every third
// one it echoes itself.
//
//     node handles.js ADDRESS PORT
'use strict';
const childProcess = require('child_process');
const net = require('net');

if (process.argv[2] === 'child') {
    process.on('message', (message, socket) => {
        if (socket) {
            socket.pipe(socket);
            socket.resume();
        }
    });
    process.on('disconnect', () => process.exit(0));
} else {
    const children = [1, 2].map(() => childProcess.fork(__filename, ['child']));
    process.on('SIGTERM', () => {
        children.forEach((child) => child.kill());
        process.exit(0);
    });
    let turn = 0;
    const server = net.createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => {
        turn += 1;
        if (turn % 3 === 0) {
            socket.pipe(socket);
            socket.resume();
        } else {
            children[turn % 3 - 1].send('yours', socket);
        }
    });
    server.listen(Number(process.argv[3]), process.argv[2]);
}
