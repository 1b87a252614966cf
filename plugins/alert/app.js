// A plain fetch handler: nothing here knows of Karman.

import { answer } from './lib/answer.js';

addEventListener('fetch', (event) => event.respondWith(answer(event.request)));
