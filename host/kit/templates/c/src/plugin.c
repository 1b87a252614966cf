// Answers {"name":"Ada"} with {"greeting":"hello Ada"}.

#include "json.h"
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

// Refuses the input: what is wrong, and in which field.
static bool invalid(const char *message, const char *field, karman_task_types_error_t *err) {
    err->tag = KARMAN_TASK_TYPES_ERROR_INVALID;
    plugin_string_dup(&err->val.invalid.message, message);
    err->val.invalid.field.is_some = true;
    plugin_string_dup(&err->val.invalid.field.val, field);
    return false;
}

// Gives true with *ret set, or false with *err set. Both are freed by the caller, the request by us.
static bool greet(const plugin_list_u8_t *body, exports_karman_task_handler_response_t *ret,
                  exports_karman_task_handler_error_t *err) {
    struct json_text name;
    switch (json_member((const char *)body->ptr, body->len, "name", &name)) {
    case JSON_FOUND: break;
    case JSON_MISSING: return invalid("`name` is missing: the body is like {\"name\":\"Ada\"}", "name", err);
    case JSON_NO_TEXT: return invalid("`name` is not a text: the body is like {\"name\":\"Ada\"}", "name", err);
    case JSON_MALFORMED: return invalid("the body is not a JSON object like {\"name\":\"Ada\"}", "body", err);
    }

    static const char before[] = "{\"greeting\":\"hello ", after[] = "\"}";
    size_t b = sizeof before - 1, a = sizeof after - 1;
    ret->body.len = b + name.length + a;
    ret->body.ptr = malloc(ret->body.len);
    if (ret->body.ptr == NULL) abort();
    memcpy(ret->body.ptr, before, b);
    memcpy(ret->body.ptr + b, name.start, name.length);
    memcpy(ret->body.ptr + b + name.length, after, a);

    plugin_string_dup(&ret->content_type, "application/json");
    ret->metadata = (karman_task_types_metadata_t){0};
    return true;
}

bool exports_karman_task_handler_handle(exports_karman_task_handler_request_t *request,
                                        exports_karman_task_handler_response_t *ret,
                                        exports_karman_task_handler_error_t *err) {
    bool done = greet(&request->body, ret, err);
    exports_karman_task_handler_request_free(request);
    return done;
}
