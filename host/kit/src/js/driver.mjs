// node driver.mjs TOOL SOURCE WIT OUTPUT DISABLED: runs the componentize-js in the folder TOOL. DISABLED is a list with
// commas. The engine exports wasi:http in one patch version only, so a WIT file that says `0.2.N` gets that version.

import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , tool, source, wit, output, disabled] = process.argv;

async function interfaces() {
  if (!wit.endsWith('.wit')) return { witPath: wit };
  const engine = await readFile(join(tool, 'lib/starlingmonkey_embedding.wasm'), 'latin1');
  const version = /wasi:http\/incoming-handler@(0\.2\.\d+)#handle/.exec(engine)?.[1];
  if (!version) throw new Error(`the engine in ${tool} does not serve wasi:http 0.2; install componentize-js 0.23`);
  return { witWorld: (await readFile(wit, 'utf8')).replaceAll('0.2.N', version) };
}

try {
  const { componentize } = await import(pathToFileURL(join(tool, 'src/componentize.js')));
  const { component } = await componentize({
    sourcePath: source,
    disableFeatures: disabled.split(',').filter(Boolean),
    ...(await interfaces()),
  });
  await writeFile(output, component);
} catch (error) {
  console.error(error.message.replace(/^Failed to initialize component.*\n/, ''));
  process.exit(1);
}
