// Receivers of webhooks, made of what others wrote. Run where tests/judge put the packages:
//
//   receivers.mjs schemas            a line {event, body} on standard input, a line of objections each
//   receivers.mjs webhooks SECRET    @octokit/webhooks behind /hook
//   receivers.mjs probot SECRET      a Probot app, behind /api/github/webhooks as Probot has it
//
// The last two say where they listen, and then which handler got what.
import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [mode, secret] = process.argv.slice(2);
const say = (line) => console.log(JSON.stringify(line));

// Each has a handler of its own, as receivers do.
const handlers = [
  "issues.opened", "issues.closed", "issues.reopened", "issues.unlabeled", "issue_comment.created",
  "pull_request.opened", "pull_request.closed", "pull_request.reopened", "pull_request.unlabeled",
  "pull_request_review.submitted", "pull_request_review_comment.created",
];
const listenTo = (where) => {
  for (const handler of handlers) {
    where.on(handler, ({ id, name, payload }) =>
      say({ handler, id, name, action: payload.action, repository: payload.repository.full_name,
        sender: payload.sender.login, said: (payload.comment ?? payload.review)?.body }));
  }
};
// They end with whoever holds their input.
const listening = (server, path) => {
  process.stdin.on("end", () => process.exit()).resume();
  say({ listening: `http://127.0.0.1:${server.address().port}${path}` });
};

if (mode === "schemas") {
  const { default: Ajv } = await import("ajv");
  const { default: addFormats } = await import("ajv-formats");
  const require = createRequire(import.meta.url);
  const schema = JSON.parse(readFileSync(require.resolve("@octokit/webhooks-schemas/schema.json")));
  // It says tsAdditionalProperties, which is for generators of types.
  const ajv = new Ajv({ allErrors: true, strict: false });
  addFormats(ajv);
  ajv.addSchema(schema, "hooks");
  for await (const line of createInterface({ input: process.stdin })) {
    const { event, body } = JSON.parse(line);
    const name = `${event}$${body.action}`;
    const valid = ajv.getSchema(`hooks#/definitions/${name}`);
    valid(body);
    // Of alternatives it is enough to know what is wrong with the one that is meant.
    const said = (valid.errors ?? []).filter(({ keyword, params }) =>
      keyword !== "oneOf" && keyword !== "anyOf" && params.type !== "null");
    const objections = said.map(({ instancePath, keyword, message, params }) => ({
      where: instancePath, keyword, message, key: params.missingProperty ?? params.additionalProperty ?? null }));
    say({ name, objections });
  }
} else if (mode === "webhooks") {
  const { Webhooks, createNodeMiddleware } = await import("@octokit/webhooks");
  // What they refuse, the test sees.
  const quiet = () => {};
  const log = { debug: quiet, info: quiet, warn: quiet, error: quiet };
  const webhooks = new Webhooks({ secret, log });
  listenTo(webhooks);
  const server = createServer(createNodeMiddleware(webhooks, { path: "/hook" }));
  server.listen(0, "127.0.0.1", () => listening(server, "/hook"));
} else {
  const { Probot, Server } = await import("probot");
  const { privateKey } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs1", format: "pem" },
  });
  const server = new Server({
    host: "127.0.0.1", port: 0,
    Probot: Probot.defaults({ appId: 1, privateKey, secret, logLevel: "fatal" }),
  });
  await server.load(listenTo);
  // What its start() does, but for a port of its own: that takes 0 for 3000.
  const own = createServer(server.expressApp);
  // What it refuses, the test sees.
  console.error = () => {};
  own.listen(0, "127.0.0.1", () => listening(own, "/api/github/webhooks"));
}
