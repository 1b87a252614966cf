#include "json.h"

#include <stdbool.h>
#include <string.h>

struct scan {
    const char *at, *end;
};

static void space(struct scan *s) {
    while (s->at < s->end && memchr(" \t\r\n", *s->at, 4)) s->at++;
}

static bool take(struct scan *s, char c) {
    space(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool text(struct scan *s, struct json_text *found) {
    if (!take(s, '"')) return false;
    found->start = s->at;
    for (; s->at < s->end && *s->at != '"'; s->at++) {
        if ((unsigned char)*s->at < 0x20) return false;
        if (*s->at != '\\') continue;
        if (++s->at == s->end || !memchr("\"\\/bfnrtu", *s->at, 9)) return false;
        if (*s->at != 'u') continue;
        for (int i = 0; i < 4; i++)
            if (++s->at == s->end || !memchr("0123456789abcdefABCDEF", *s->at, 22)) return false;
    }
    if (s->at == s->end) return false;
    found->length = (size_t)(s->at++ - found->start);
    return true;
}

// Passes over any value: to its end when it is a text, else to the comma or bracket behind it.
static bool skip(struct scan *s) {
    struct json_text ignored;
    const char *start = s->at;
    for (int depth = 0; s->at < s->end; s->at++) {
        while (s->at < s->end && *s->at == '"')
            if (!text(s, &ignored)) return false;
        if (s->at == s->end) return false;
        if (depth == 0 && memchr(",}]", *s->at, 3)) return s->at > start;
        if (memchr("{[", *s->at, 2)) depth++;
        if (memchr("}]", *s->at, 2)) depth--;
    }
    return false;
}

enum json_found json_member(const char *json, size_t length, const char *key, struct json_text *value) {
    struct scan s = {json, json + length};
    enum json_found found = JSON_MISSING;
    if (!take(&s, '{')) return JSON_MALFORMED;
    if (!take(&s, '}')) {
        do {
            struct json_text name;
            if (!text(&s, &name) || !take(&s, ':')) return JSON_MALFORMED;
            space(&s);
            bool wanted = name.length == strlen(key) && memcmp(name.start, key, name.length) == 0;
            if (wanted) found = s.at < s.end && *s.at == '"' ? JSON_FOUND : JSON_NO_TEXT;
            if (wanted && found == JSON_FOUND ? !text(&s, value) : !skip(&s)) return JSON_MALFORMED;
        } while (take(&s, ','));
        if (!take(&s, '}')) return JSON_MALFORMED;
    }
    space(&s);
    return s.at == s.end ? found : JSON_MALFORMED;
}
