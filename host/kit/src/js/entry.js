// What the component starts from: the plugin's own app.js, with every exception that it did not mean told as a defect, and so every
// answer that is none.

import * as app from '../app.js';

export * from '../app.js';

export const handler = {
  async handle(request) {
    let answer;
    try {
      answer = await app.handler.handle(request);
    } catch (error) {
      throw isMeant(error) ? error : told(error);
    }
    const problem = problemOf(answer);
    if (problem) throw { tag: 'internal', val: problem };
    return answer;
  },
};

const WITH_TEXT = ['failed', 'denied', 'unavailable', 'deadline', 'limit', 'cancelled', 'internal'];

/** Whether it is an error of `karman:task/types`. */
function isMeant(error) {
  const { tag, val } = error ?? {};
  if (tag === 'invalid') return typeof val?.message === 'string' && typeof (val.field ?? '') === 'string';
  return WITH_TEXT.includes(tag) && typeof val === 'string';
}

function told(error) {
  if (error?.tag) {
    const shape = error.tag === 'invalid' ? '{ message, field }, both strings' : `a string, and \`tag\` one of invalid, ${WITH_TEXT.join(', ')}`;
    return { tag: 'internal', val: `{ tag: '${error.tag}' } is no error: \`val\` has to be ${shape}` };
  }
  // The engine throws a bare text when it has no memory left.
  const tag = /\bout of memory\b/.test(error) ? 'limit' : 'internal';
  return { tag, val: `${error}\n${error?.stack ?? ''}`.trim() };
}

/** What is wrong with an answer: the component would lose it, or trap. */
function problemOf(answer) {
  if (answer?.body === undefined) return `\`handle\` returned ${typeOf(answer)}; an answer is { contentType, metadata, body }`;
  const { contentType, metadata, body } = answer;
  if (typeof contentType !== 'string') return `\`contentType\` is of type ${typeOf(contentType)}; it is a string, as in 'text/plain'`;
  if (!(Array.isArray(metadata) && metadata.every(isPair))) return '`metadata` is no array of [key, value]; [] is an empty one';
  if (typeof body === 'string') return '`body` is a string; use new TextEncoder().encode(…)';
  if (!(ArrayBuffer.isView(body) || body instanceof ArrayBuffer)) return `\`body\` is of type ${typeOf(body)}; it is a Uint8Array`;
  return undefined;
}

function isPair(pair) {
  return Array.isArray(pair) && pair.length === 2 && pair.every((part) => typeof part === 'string');
}

function typeOf(value) {
  return value?.constructor?.name ?? `${value}`;
}
