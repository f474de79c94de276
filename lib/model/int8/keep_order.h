/*
 * keep_order.h - the orders in which mixed_precision.c keeps products in higher precision.
 */
#ifndef GSV_KEEP_ORDER_H
#define GSV_KEEP_ORDER_H

#include "lib/model/spec.h"

/* The orders in which products are kept in higher precision. */
enum gsv_product_order {
    GSV_CONTRACT_FIRST, /* GSV_STAGE_CONTRACT of all layers, then the other products by layer */
    GSV_LAYERS,         /* all products of the first layer, then of the second, ... */
    GSV_ATTENTION_FIRST,
    GSV_N_ORDERS
};

/* The product at index `at` of the order. */
int32_t gsv_kept_product(const struct gsv_spec *spec, enum gsv_product_order order, int32_t at);

/* The index of a product's item. */
int32_t gsv_product_item(const struct gsv_spec *spec, int32_t product);

#endif
