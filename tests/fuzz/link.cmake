if(TARGET baton_proxy)
  baton_fuzz(fuzz_link LIBS baton_proxy SOURCES
      ${PROJECT_SOURCE_DIR}/agent/src/link/link.c
      ${PROJECT_SOURCE_DIR}/agent/src/link/link_conn.c
      ${PROJECT_SOURCE_DIR}/agent/src/link/link_reason.c
      ${PROJECT_SOURCE_DIR}/agent/src/link/link_name.c
      ${PROJECT_SOURCE_DIR}/agent/src/base/reactor.c
      ${PROJECT_SOURCE_DIR}/tests/support/link_sides.c)
  target_include_directories(fuzz_link PRIVATE
      ${PROJECT_SOURCE_DIR}/agent/include)
endif()
