if(TARGET baton_proxy)
  baton_fuzz(fuzz_link LIBS baton_proxy SOURCES
      ${PROJECT_SOURCE_DIR}/agent/src/link.c
      ${PROJECT_SOURCE_DIR}/agent/src/link_conn.c
      ${PROJECT_SOURCE_DIR}/agent/src/link_message.c
      ${PROJECT_SOURCE_DIR}/agent/src/link_name.c
      ${PROJECT_SOURCE_DIR}/agent/src/reactor.c
      ${PROJECT_SOURCE_DIR}/tests/support/link_sides.c)
  target_include_directories(fuzz_link PRIVATE
      ${PROJECT_SOURCE_DIR}/agent/include)
endif()
