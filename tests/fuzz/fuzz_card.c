/*
 * Any bytes as a card: it is refused, or what was read is within its bounds
 * and written again gives the same card.
 */
#include "agent/src/geometry/card.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact) {
        abort();
    }
}

static void check_bounds(const struct bta_card *card)
{
    require(card->rank < card->world && card->boot != 0);
    require(card->engine.len > 0 && card->engine.len <= LINK_ENGINE_MAX);
    for (size_t i = 0; i < card->region_count; i++) {
        const struct bta_card_region *const region = &card->regions[i];
        const uint64_t length = bta_layout_length(&region->layout);
        require(region->target.base <= UINT64_MAX - length);
        require(region->target.at <= UINT64_MAX - length);
    }
    for (size_t i = 0; i < card->endpoint_count; i++) {
        require(card->endpoints[i].address_length <= BTA_ADDRESS_MAX);
    }
}

static void check_again(const struct bta_card *card)
{
    struct bta_card again;
    struct bt_buf text;

    bt_buf_init(&text);
    bt_buf_append_char(&text, '{');
    bta_card_write(card, &text);
    bt_buf_append_char(&text, '}');
    require(bta_card_read(&again, bt_buf_str(&text), NULL) == BATON_OK);
    require(again.boot == card->boot && again.rank == card->rank);
    require(bt_str_eq(again.engine, card->engine));
    require(again.region_count == card->region_count);
    for (size_t i = 0; i < card->region_count; i++) {
        require(bta_layout_differs(&again.regions[i].layout,
                                   &card->regions[i].layout) == NULL);
        require(again.regions[i].target.key == card->regions[i].target.key);
    }
    bta_card_fini(&again);
    bt_buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct bt_str text = bt_str_span((const char *)data, size);
    struct bta_card card;
    const char *why = NULL;
    const baton_status status = bta_card_read(&card, text, &why);

    require(status == BATON_OK || status == BATON_ERR_MEMORY || why != NULL);
    if (status == BATON_OK) {
        check_bounds(&card);
        check_again(&card);
    }
    bta_card_fini(&card);
    return 0;
}
