// The task: CSV in as it comes, events out as they are found. A call waits for one thing at a time: bytes to read, room to
// write, or whoever wants to know whether the answer is whole.

#include "plugin.h"
#include "report.h"

#include <stdlib.h>

// The generator's names carry the whole path of the interface.
#define HANDLER(name) exports_karman_task_stream_handler_##name

enum { PIECE = 16 << 10 };

struct call {
    enum { READING, WRITING, TELLING } doing;
    bool over; // there is nothing more to be read
    HANDLER(stream_u8_t) in;
    HANDLER(stream_u8_writer_t) out;
    HANDLER(future_result_void_error_writer_t) whole;
    HANDLER(result_void_error_t) verdict;
    plugin_waitable_set_t set;
    struct report report;
    struct text text; // what is to be written
    size_t written;   // of it
    char piece[PIECE];
};

static void refuse(struct call *call) {
    struct text says = {0};
    report_problem(&call->report, &says);
    call->verdict.is_err = true;
    HANDLER(error_t) *error = &call->verdict.val.err;
    error->tag = KARMAN_TASK_TYPES_ERROR_INVALID;
    error->val.invalid.message = (plugin_string_t){(uint8_t *)says.start, says.length};
    error->val.invalid.field.is_some = true;
    plugin_string_set(&error->val.invalid.field.val, "body");
}

// Takes in what has come of what was begun.
static void take(struct call *call, plugin_waitable_status_t status) {
    size_t count = PLUGIN_WAITABLE_COUNT(status);
    bool closed = PLUGIN_WAITABLE_STATE(status) == PLUGIN_WAITABLE_DROPPED;
    if (call->doing == READING) {
        bool reads = report_piece(&call->report, call->piece, count, &call->text);
        if (reads && closed) reads = report_end(&call->report, &call->text);
        if (!reads) refuse(call);
        call->over = closed || !reads;
    } else if (call->doing == WRITING) {
        call->written += count;
        // Nobody wants the rest.
        if (closed) call->over = true, call->written = call->text.length;
    }
}

// Begins what comes next.
static plugin_waitable_status_t begin(struct call *call) {
    if (call->written < call->text.length) {
        call->doing = WRITING;
        const uint8_t *rest = (const uint8_t *)call->text.start + call->written;
        return HANDLER(stream_u8_write)(call->out, rest, call->text.length - call->written);
    }
    call->text.length = call->written = 0;
    if (!call->over) {
        call->doing = READING;
        return HANDLER(stream_u8_read)(call->in, (uint8_t *)call->piece, PIECE);
    }
    call->doing = TELLING;
    HANDLER(stream_u8_drop_readable)(call->in);
    HANDLER(stream_u8_drop_writable)(call->out);
    return HANDLER(future_result_void_error_write)(call->whole, &call->verdict);
}

static plugin_callback_code_t end(struct call *call) {
    HANDLER(future_result_void_error_drop_writable)(call->whole);
    plugin_waitable_set_drop(call->set);
    if (call->verdict.is_err) free(call->verdict.val.err.val.invalid.message.ptr);
    free(call->text.start);
    free(call);
    return PLUGIN_CALLBACK_CODE_EXIT;
}

// Goes on until something has to be waited for.
static plugin_callback_code_t go_on(struct call *call) {
    for (;;) {
        plugin_waitable_status_t status = begin(call);
        if (status == PLUGIN_WAITABLE_STATUS_BLOCKED) {
            const uint32_t waits_for[] = {[READING] = call->in, [WRITING] = call->out, [TELLING] = call->whole};
            plugin_waitable_join(waits_for[call->doing], call->set);
            return PLUGIN_CALLBACK_CODE_WAIT(call->set);
        }
        if (call->doing == TELLING) return end(call);
        take(call, status);
    }
}

plugin_callback_code_t HANDLER(handle)(plugin_string_t *content_type, HANDLER(metadata_t) *metadata, HANDLER(stream_u8_t) body) {
    plugin_string_free(content_type);
    HANDLER(metadata_free)(metadata);
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL) abort();
    call->in = body;
    call->set = plugin_waitable_set_new();
    report_start(&call->report, &call->text);
    plugin_context_set_0(call);

    HANDLER(result_tuple3_head_stream_u8_future_result_void_error_error_t) answer = {0};
    plugin_string_set(&answer.val.ok.f0.content_type, "application/json");
    answer.val.ok.f1 = HANDLER(stream_u8_new)(&call->out);
    answer.val.ok.f2 = HANDLER(future_result_void_error_new)(&call->whole);
    HANDLER(handle_return)(answer);
    return go_on(call);
}

plugin_callback_code_t HANDLER(handle_callback)(plugin_event_t *event) {
    struct call *call = plugin_context_get_0();
    if (call->doing == TELLING) return end(call);
    take(call, event->code);
    return go_on(call);
}
