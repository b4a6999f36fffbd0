// azure-container.js NAME - makes a container in Azurite, with the emulator's well-known account and a signature.
const crypto = require('node:crypto');
const http = require('node:http');

const account = process.env.AZURE_STORAGE_ACCOUNT_NAME;
const key = Buffer.from(process.env.AZURE_STORAGE_ACCOUNT_KEY, 'base64');
const name = process.argv[2];
const date = new Date().toUTCString();
const version = '2021-12-02';
const headers = `x-ms-date:${date}\nx-ms-version:${version}\n`;
const resource = `/${account}/${account}/${name}\nrestype:container`;
const text = `PUT\n\n\n\n\n\n\n\n\n\n\n\n${headers}${resource}`;
const signature = crypto.createHmac('sha256', key).update(text, 'utf8').digest('base64');
const request = http.request(
  {
    host: '127.0.0.1',
    port: 10000,
    method: 'PUT',
    path: `/${account}/${name}?restype=container`,
    headers: {
      'x-ms-date': date,
      'x-ms-version': version,
      'content-length': 0,
      authorization: `SharedKey ${account}:${signature}`,
    },
  },
  (answer) => {
    answer.resume();
    answer.on('end', () => process.exit(answer.statusCode === 201 ? 0 : (console.error(answer.statusCode), 1)));
  },
);
request.on('error', (error) => (console.error(error.message), process.exit(1)));
request.end();
