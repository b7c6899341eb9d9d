// Four workers serve a file. POLICY is rr, where the first process accepts and passes connections to them, or
// none, where it passes them the listener.
//
//     node cluster.js POLICY ADDRESS PORT FILE
'use strict';
const cluster = require('cluster');
const fs = require('fs');
const http = require('http');

const [policy, address, port, file] = process.argv.slice(2);
cluster.schedulingPolicy = policy === 'rr' ? cluster.SCHED_RR : cluster.SCHED_NONE;

if (cluster.isPrimary) {
    const workers = [1, 2, 3, 4].map(() => cluster.fork());
    const end = () => workers.forEach((worker) => worker.process.kill());
    process.on('SIGTERM', end);
    cluster.on('exit', () => { if (Object.keys(cluster.workers).length === 0) process.exit(0); });
} else {
    const page = fs.readFileSync(file);
    http.createServer((request, response) => response.end(page)).listen(Number(port), address);
}
