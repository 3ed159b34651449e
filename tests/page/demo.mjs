// The demo of the program that was built.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { until } from "./browser.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = process.env.CRISWEEP ?? join(root, "target/debug/crisweep");

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
  const cancel = (pass) => fetch(`${url}${pass}/cancel`, { method: "POST" });
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
