# The link's two ends, and the control thread that owns the proxy's.

baton_unit(test_link_message LIBS bt_link)
baton_unit(test_handoffs LIBS baton_proxy)
baton_unit(test_control LIBS baton_proxy SOURCES ../support/pair.c)

baton_unit(test_link LIBS baton_proxy SOURCES
    ${PROJECT_SOURCE_DIR}/agent/src/link/link.c
    ${PROJECT_SOURCE_DIR}/agent/src/link/link_conn.c
    ${PROJECT_SOURCE_DIR}/agent/src/link/link_reason.c
    ${PROJECT_SOURCE_DIR}/agent/src/link/link_name.c
    ${PROJECT_SOURCE_DIR}/agent/src/base/reactor.c
    ${PROJECT_SOURCE_DIR}/tests/support/link_sides.c)
target_include_directories(test_link PRIVATE
    ${PROJECT_SOURCE_DIR}/agent/include)
