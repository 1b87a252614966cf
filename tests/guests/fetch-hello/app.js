// A plain fetch handler that knows nothing of Karman: greets, and sends back the body of a POST.

addEventListener('fetch', (event) => event.respondWith(answer(event.request)));

async function answer(request) {
  const type = request.headers.get('content-type') ?? 'text/plain';
  const body = request.method === 'POST' ? await request.arrayBuffer() : 'Hello from fetch\n';
  return new Response(body, { headers: { 'content-type': type } });
}
