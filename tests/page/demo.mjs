// The demo of the program that was built, and a browser of the system: what tests and screenshots share.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = process.env.CRISWEEP ?? join(root, "target/debug/crisweep");
// tests/page/setup.sh installs them there.
const installed = createRequire(join(root, "target/page/package.json"));
const { chromium } = installed("playwright-core");
export const axe = readFileSync(installed.resolve("axe-core/axe.min.js"), "utf8");

/** Starts the demo. Its passes take some seconds, so that a person sees them move. */
export async function startDemo(changes = {}) {
  const directory = mkdtempSync(join(tmpdir(), "crisweep-page-"));
  const config = join(directory, "crisweep.json.yaml");
  writeFileSync(config, JSON.stringify({
    node: { name: "node-1" },
    collect: { max_age: "1s" },
    gc: { batch_size: 100, batch_pause: "200ms", io_pressure_pause_percent: 0 },
    brakes: { cooldown: "0s", max_passes_per_hour: 0 },
    web: { listen: ["127.0.0.1:0"] },
    ...changes,
  }));
  const child = spawn(program, ["demo", "--config.file", config], {
    env: { PATH: process.env.PATH, TMPDIR: directory },
    stdio: ["ignore", "pipe", "pipe"],
  });
  process.on("exit", () => child.kill("SIGKILL"));
  let output = "";
  const url = await new Promise((resolve, reject) => {
    const read = (chunk) => {
      output += chunk;
      const found = output.match(/http:\/\/127\.0\.0\.1:(\d+)/);
      if (found && found[1] !== "0") resolve(found[0]);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", () => reject(new Error(`the demo ended: ${output}`)));
  });
  const get = async (path) => (await fetch(url + path)).json();
  const cancel = (pass) => fetch(`${url}/api/v1/passes/${pass}/cancel`, { method: "POST" });
  const stop = async () => {
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.removeAllListeners("exit");
    child.once("exit", () => rmSync(directory, { recursive: true, force: true }));
    child.kill("SIGTERM");
    await Promise.race([gone, new Promise((resolve) => setTimeout(resolve, 10_000))]);
    child.kill("SIGKILL");
  };
  await until("the demo knows its pods", async () => {
    const plan = await get("/api/v1/plan").catch(() => null);
    const goes = (target) => Object.values(plan?.summary?.[target]?.remove ?? {}).length > 0;
    return ["containers", "sandboxes", "logs", "images"].every(goes);
  });
  return { url, get, cancel, stop };
}

/** Starts the system's Chromium. As root it has no sandbox; it only opens the demo. */
export function startBrowser() {
  const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args, headless: true });
}

export async function until(what, holds, patience = 60_000) {
  const end = Date.now() + patience;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`waited too long until ${what instanceof Function ? what() : what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
