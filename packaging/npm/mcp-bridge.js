#!/usr/bin/env node
// Runs the program for this system. It is in one of the optional dependencies: npm installs the one whose "os" and
// "cpu" fit, so that nothing is downloaded when the package has been installed.
"use strict";

const { spawn } = require("node:child_process");

const name = `@mcp-bridge/${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/mcp-bridge${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`mcp-bridge: the package ${name} is not installed. Either there is no mcp-bridge for this system, or npm was told to leave out optional dependencies.`);
  process.exit(1);
}

const args = process.argv.slice(2);
if (process.execve && process.platform !== "win32") {
  // Since Node 22.15: the program takes the place of Node, and gets its signals.
  process.execve(program, [program, ...args], process.env);
}
const child = spawn(program, args, { stdio: "inherit" });
child.on("error", (err) => {
  console.error(`mcp-bridge: ${program}: ${err.message}`);
  process.exit(1);
});
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
// A terminal sends it to the program, too, for which a second one would mean: at once.
process.on("SIGINT", () => {});
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
