// Answers `{"name":"Ada"}` with `{"greeting":"hello Ada"}`.

/** The task: Karman calls `handle` once for each request. */
export const handler = {
  handle({ body }) {
    const output = { greeting: `hello ${nameIn(body)}` };
    return {
      contentType: 'application/json',
      metadata: [],
      body: new TextEncoder().encode(JSON.stringify(output)),
    };
  },
};

/** The name that the body gives. */
function nameIn(body) {
  let given;
  try {
    given = JSON.parse(new TextDecoder().decode(body));
  } catch (error) {
    throw invalid(`the body is not like {"name":"Ada"}: ${error.message}`, 'body');
  }
  if (typeof given?.name !== 'string') {
    throw invalid(`\`name\` is ${JSON.stringify(given?.name)}; it must be a text, as in {"name":"Ada"}`, 'name');
  }
  return given.name;
}

/** Input that is refused, and where. */
function invalid(message, field) {
  return { tag: 'invalid', val: { message, field } };
}
