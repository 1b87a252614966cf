// What the component starts from: the plugin's own app.js, with every exception that it did not mean told as a defect.

import * as app from '../app.js';

export * from '../app.js';

export const handler = {
  async handle(request) {
    try {
      return await app.handler.handle(request);
    } catch (error) {
      throw error?.tag ? error : { tag: 'internal', val: `${error}\n${error?.stack ?? ''}`.trim() };
    }
  },
};
