// Answers a request for /N with a file that it has just read from disk, and opens and closes other files
// meanwhile: numbers of descriptors change hands between files and connections all the time.
//
//     node files.js PORT DIRECTORY
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');

const [port, directory] = process.argv.slice(2);
const own = path.join(directory, 'written');

http.createServer((request, response) => {
    fs.writeFile(own, 'of no concern to peers\n'.repeat(1000), (failed) => {
        fs.readFile(path.join(directory, path.basename(request.url)), (error, content) => {
            response.statusCode = error || failed ? 500 : 200;
            response.end(error || failed ? String(error || failed) : content);
        });
    });
}).listen(Number(port), '0.0.0.0');
