// A request that is not served: with which status, why, and which field is wrong.

export class Refusal extends Error {
  constructor(status, field, message, headers) {
    super(message);
    Object.assign(this, { status, field, headers });
  }
}

export const refuse = (status, field, message, headers = {}) => new Refusal(status, field, message, headers);
