// Just enough JSON to take one text out of an object.
#pragma once

#include <stddef.h>

// A text as it stands between its quotes, escapes and all: it may go into other JSON as it is.
struct json_text {
    const char *start;
    size_t length;
};

enum json_found { JSON_FOUND, JSON_MISSING, JSON_NO_TEXT, JSON_MALFORMED };

// Looks in the object `text` for the member `key`, which should be a text.
enum json_found json_member(const char *text, size_t length, const char *key, struct json_text *value);
