/*
 * The one reader and writer of public structs.
 */
#include "agent/src/base/sized.h"

#define SIZE_MOST 4096 /* of a struct; above it, somebody forgot to set it */

/* A member that later fills today's padding would find an older host's garbage
 * there: no struct ends in padding, so sizes are multiples of a word. */
#define ENDS_WITH(type, member)                                    \
    _Static_assert(offsetof(type, member) +                        \
                           sizeof(((const type *)NULL)->member) == \
                       sizeof(type),                               \
                   #type " ends in padding")
ENDS_WITH(baton_options, log_arg);
ENDS_WITH(baton_layout, head_stride);
ENDS_WITH(baton_region, device);
ENDS_WITH(baton_progress, flags);
ENDS_WITH(baton_prompt, adapter_revision);
ENDS_WITH(baton_params, key);
ENDS_WITH(baton_offer, tokens);
ENDS_WITH(baton_pull_request, prompt);
ENDS_WITH(baton_event, provider);
ENDS_WITH(baton_stats, boot);

static size_t size_of(const void *object)
{
    size_t size;

    memcpy(&size, object, sizeof(size));
    return size;
}

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

baton_status bta_sized_read(void *own, const void *given)
{
    const size_t own_size = size_of(own);
    const size_t size = given == NULL ? 0 : size_of(given);
    const size_t common = size < own_size ? size : own_size;

    if (size == 0 || size > SIZE_MOST || size % sizeof(size_t) != 0) {
        return BATON_ERR_ARGUMENT;
    }
    if (!is_zero((const char *)given + common, size - common)) {
        return BATON_ERR_UNSUPPORTED;
    }
    memcpy((char *)own + sizeof(size_t), (const char *)given + sizeof(size_t),
           common - sizeof(size_t));
    return BATON_OK;
}

void bta_sized_write(void *out, size_t size, const void *own)
{
    const size_t own_size = size_of(own);
    const size_t common = size < own_size ? size : own_size;

    if (common > sizeof(size_t)) {
        memcpy((char *)out + sizeof(size_t), (const char *)own + sizeof(size_t),
               common - sizeof(size_t));
        memset((char *)out + common, 0, size - common);
    }
}
