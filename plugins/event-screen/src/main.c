// The task: a CSV body in, its events out.

#include "plugin.h"
#include "report.h"

bool exports_karman_task_handler_handle(exports_karman_task_handler_request_t *request,
                                        exports_karman_task_handler_response_t *ret,
                                        exports_karman_task_handler_error_t *err) {
    struct text out = {0};
    bool done = report((const char *)request->body.ptr, request->body.len, &out);
    exports_karman_task_handler_request_free(request);
    if (done) {
        plugin_string_dup(&ret->content_type, "application/json");
        ret->metadata = (karman_task_types_metadata_t){0};
        ret->body = (plugin_list_u8_t){(uint8_t *)out.start, out.length};
    } else {
        err->tag = KARMAN_TASK_TYPES_ERROR_INVALID;
        err->val.invalid.message = (plugin_string_t){(uint8_t *)out.start, out.length};
        err->val.invalid.field.is_some = true;
        plugin_string_dup(&err->val.invalid.field.val, "body");
    }
    return done;
}
