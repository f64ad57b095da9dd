// Runs .tflite models with LiteRT.js, in a page that web_runner.py serves and asks.
//
// It asks for what to do, does it, and sends the answer, for ever. A question and an answer are
// a line of JSON, in which "arrays" is a list of [name, dtype as numpy's .str, shape], then the
// bytes of each array, as in runner.py.

const ARRAYS = { "<f4": Float32Array, "<i4": Int32Array, "|u1": Uint8Array };
const DTYPES = { float32: "<f4", int32: "<i4", uint8: "|u1" };
// As in runner.py.
const STABLE_WITHIN = 0.02, LEAST_WINDOW = 5, LEAST_WARM_UP_MS = 100;

let litert = null;
let runner = null;

const tasks = {
  // Load LiteRT itself; threads need the page to be isolated from others.
  async open({ threads, webgpu }) {
    litert = await import("@litertjs/core");
    await litert.loadLiteRt("package/@litertjs/core/wasm/", { threads: threads > 1 });
    const wanted = ["fullVersionList"];
    const { fullVersionList } = await navigator.userAgentData.getHighEntropyValues(wanted);
    const { version } = fullVersionList.find(({ brand }) => brand === "Chromium");
    return { browser: version, ...(webgpu ? await graphics() : {}) };
  },

  async load({ signature, threads, webgpu }) {
    const response = await fetch("model.tflite");
    if (!response.ok) throw new Error(`the model: ${response.status}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const started = performance.now();
    const accelerator = webgpu ? "webgpu" : "wasm";
    const options = { accelerator, cpuOptions: { numThreads: threads } };
    const compiled = await litert.loadAndCompile(bytes, options);
    const load_us = (performance.now() - started) * 1e3;
    runner = signature ? compiled.signatures[signature] : compiled;
    if (!runner) throw new Error(`no signature ${signature} in LiteRT.js`);
    return { load_us };
  },

  // Each array holds whole batches; those of the model's own size are run one after the other.
  async run({ batch, outputs }, arrays) {
    const count = arrays.values().next().value.shape[0];
    const parts = new Map(outputs.map((name) => [name, []]));
    for (let start = 0; start < count; start += batch) {
      const inputs = tensors(arrays, start, batch);
      for (const [name, array] of await invoke(inputs, outputs)) parts.get(name).push(array);
      inputs.forEach((tensor) => tensor.delete());
    }
    return { parts };
  },

  async time({ batch, warmup, warmup_seconds, repeats, seconds }, arrays) {
    const inputs = tensors(arrays, 0, batch);
    const once = async () => {
      const started = performance.now();
      const given = await runner.run(inputs);
      const took = performance.now() - started;
      given.forEach((tensor) => tensor.delete());
      return took;
    };
    const first = await once();
    const warm = await warmUp(once, warmup - 1, warmup_seconds * 1e3);
    const samples = [];
    const deadline = performance.now() + seconds * 1e3;
    while (samples.length < repeats && (performance.now() < deadline || !samples.length)) {
      samples.push(await once());
    }
    const us = (ms) => ms * 1e3;
    return { first_us: us(first), warmup: warm + 1, samples_us: samples.map(us) };
  },
};

// The GPU that the browser gives pages.
async function graphics() {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error("the browser has no WebGPU adapter");
  const { vendor, architecture, description } = adapter.info;
  const name = description || [vendor, architecture].filter(Boolean).join(" ") || "unnamed";
  return { gpu: name, is_software: /swiftshader/i.test(`${architecture} ${description}`) };
}

// The model's inputs from a batch of samples, in the model's own order.
function tensors(arrays, start, batch) {
  const given = [...arrays.values()];
  return runner.getInputDetails().map((detail, index) => {
    const { data, shape } = arrays.get(detail.name) ?? given[index];
    const size = data.length / (shape[0] || 1);
    // A scalar, or an input without samples, is the same for every batch.
    const part = shape.length ? data.slice(start * size, (start + batch) * size) : data;
    return new litert.Tensor(part, Array.from(detail.shape));
  });
}

async function invoke(inputs, outputs) {
  const given = await runner.run(inputs);
  const details = runner.getOutputDetails();
  const named = details.every((detail) => outputs.includes(detail.name));
  return Promise.all(given.map(async (tensor, index) => {
    const { dtype, layout } = tensor.type;
    const array = { dtype, shape: Array.from(layout.dimensions), data: await tensor.data() };
    array.data = array.data.slice();
    tensor.delete();
    return [named ? details[index].name : outputs[index], array];
  }));
}

async function warmUp(once, least, most_ms) {
  const times = [];
  const deadline = performance.now() + most_ms;
  let lookAt = 2 * LEAST_WINDOW, sum = 0;
  while (times.length < least || performance.now() < deadline) {
    times.push(await once());
    sum += times[times.length - 1];
    if (times.length >= Math.max(lookAt, least) && sum >= LEAST_WARM_UP_MS) {
      if (isStable(times)) break;
      lookAt = Math.floor((times.length * 5) / 4);
    }
  }
  return times.length;
}

function isStable(times) {
  const size = Math.max(LEAST_WINDOW, Math.floor(times.length / 4));
  const before = median(times.slice(-2 * size, -size)), last = median(times.slice(-size));
  return Math.abs(last - before) < STABLE_WITHIN * Math.min(last, before);
}

function median(values) {
  const sorted = values.slice().sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function received(buffer) {
  const bytes = new Uint8Array(buffer), end = bytes.indexOf(10);
  const request = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const arrays = new Map();
  let at = end + 1;
  for (const [name, dtype, shape] of request.arrays) {
    const size = shape.reduce((a, b) => a * b, 1) * ARRAYS[dtype].BYTES_PER_ELEMENT;
    // The bytes stand anywhere; typed arrays begin at multiples of their size.
    arrays.set(name, { shape, data: new ARRAYS[dtype](buffer.slice(at, at + size)) });
    at += size;
  }
  return [request, arrays];
}

// The batches of each output, joined along the first axis.
async function send(said, parts = new Map()) {
  const arrays = [], bytes = [];
  for (const [name, list] of parts) {
    const first = list.reduce((sum, { shape }) => sum + (shape[0] ?? 1), 0);
    arrays.push([name, DTYPES[list[0].dtype], [first, ...list[0].shape.slice(1)]]);
    bytes.push(...list.map(({ data }) => data));
  }
  const line = JSON.stringify({ ...said, arrays }) + "\n";
  await fetch("answer", { method: "POST", body: new Blob([line, ...bytes]) });
}

// LiteRT says on the console that it cannot run a model, and gives zeros for its outputs.
const complaints = [];
// The next lines have the operators that WebGPU lacks, without which nothing runs.
const LACKS = /not supported by GPU delegate/, OPERATOR = /^[A-Z0-9_]+: /;
for (const kind of ["error", "warn", "log"]) {
  const print = console[kind].bind(console);
  console[kind] = (...said) => {
    const text = said.join(" ");
    const lacking = OPERATOR.test(text) && complaints.some((line) => LACKS.test(line));
    if (text.startsWith("ERROR") || lacking) complaints.push(text);
    print(...said);
  };
}

async function main() {
  // It stays open for as long as this page lives, so that the server sees it die.
  fetch("alive").catch(() => {});
  for (;;) {
    const response = await fetch("next");
    if (response.status === 204) continue;
    const [request, arrays] = received(await response.arrayBuffer());
    try {
      complaints.length = 0;
      const { parts, ...said } = await tasks[request.task](request, arrays);
      if (complaints.length) throw new Error(complaints.join("; "));
      await send(said, parts);
    } catch (error) {
      await send({ error: String(error?.message ?? error) });
    }
  }
}

main();
